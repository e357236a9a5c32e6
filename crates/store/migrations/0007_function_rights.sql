-- Functions look names up only in the schema of this database, and never in the temporary schema of the caller first. With the
-- previous search path, a role with row rights could create a temporary table with a trigger, call tend_months, and run the
-- trigger with the rights of the owner. Functions that nodes call are no longer executable by every role.
do $$
declare
    called  constant text[] := array['tend_months', 'claim_data_set', 'release_data_set'];
    member  record;
    grantee text;
begin
    for member in
        select p.oid::regprocedure as signature, p.proname as name from pg_proc p
        where p.pronamespace = current_schema()::regnamespace
            and p.proname = any (called || array['make_month', 'announce_key', 'announce_account', 'announce_mail', 'fold_email'])
    loop
        execute format('alter function %s set search_path = %I, pg_temp', member.signature, current_schema());
        -- Roles that could call it until now: those that may write usage.
        if member.name = any (called) then
            for grantee in
                select rolname from pg_roles, aclexplode((select relacl from pg_class where oid = 'usage'::regclass)) acl
                where acl.grantee = pg_roles.oid and acl.privilege_type = 'INSERT'
            loop
                execute format('grant execute on function %s to %I', member.signature, grantee);
            end loop;
        end if;
        execute format('revoke execute on function %s from public', member.signature);
    end loop;
end $$;
