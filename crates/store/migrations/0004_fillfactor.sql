-- Room in the pages of usage and refusals: a count is raised every few seconds, and a row whose next version finds room beside it costs a
-- third of one that must be moved and entered into the index again. Tables that are there have it where they grow from now on.

create or replace function make_month(whole text, month date) returns void language plpgsql as $$
declare
    part text := format('%s_%s', whole, to_char(month, 'YYYY_MM'));
    until date := (month + interval '1 month')::date;
begin
    if to_regclass(part) is not null then
        return;
    end if;
    execute format('create table %I (like %I including constraints) with (fillfactor = 50)', part, whole);
    execute format('with moved as (delete from %I where day >= %L and day < %L returning *) insert into %I select * from moved',
        whole || '_other', month, until, part);
    execute format('alter table %I attach partition %I for values from (%L) to (%L)', whole, part, month, until);
exception
    -- The part from before months holds it.
    when invalid_object_definition then null;
end $$;

do $$
declare
    part regclass;
begin
    for part in select inhrelid::regclass from pg_inherits where inhparent in ('usage'::regclass, 'refusals'::regclass) loop
        execute format('alter table %s set (fillfactor = 50)', part);
    end loop;
end $$;
