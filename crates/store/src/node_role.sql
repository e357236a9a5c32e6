-- The rights of the role ipseity_node, if it exists. A node connects with a role that is a member of it. It can read and write
-- rows and call five functions, but it owns nothing and creates nothing. It cannot change or delete security events, and it
-- only reads sites and audit events. `ipseity migrate` runs this as the owner of the schema after each migration, so that it includes new
-- tables.
do $$
declare
    relation regclass;
begin
    if not exists (select from pg_roles where rolname = 'ipseity_node') then
        return;
    end if;
    -- Concurrent grants on one table fail.
    perform pg_advisory_xact_lock(hashtext('ipseity_node'));
    execute format('grant usage on schema %I to ipseity_node', current_schema());
    -- Older versions of PostgreSQL let every role create objects in `public`, which a function of the owner might call.
    execute format('revoke create on schema %I from public', current_schema());
    for relation in
        select oid from pg_class
        where relnamespace = current_schema()::regnamespace and relkind in ('r', 'p') and not relispartition
            and pg_has_role(relowner, 'usage')
            and relname <> '_sqlx_migrations'
    loop
        execute format('grant select on %s to ipseity_node', relation);
        if relation not in ('sites'::regclass, 'audit_events'::regclass) then
            execute format('grant insert on %s to ipseity_node', relation);
        end if;
        if relation not in ('security_events'::regclass, 'sites'::regclass, 'audit_events'::regclass) then
            execute format('grant update, delete on %s to ipseity_node', relation);
        end if;
    end loop;
    grant select on account_limits, _sqlx_migrations to ipseity_node;
    grant execute on function tend_months(int), claim_data_set(uuid, text, interval), release_data_set(uuid),
        delete_security_events(int, bigint), delete_audit_events(int, bigint) to ipseity_node;
end $$;
