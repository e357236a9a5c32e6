-- Usage and refusals by month: what has served its time goes with its table, at once, and leaves no holes behind.
--
-- What is there becomes the first part as it is, so that nothing is copied. A version that knows nothing of months goes on as before: its
-- statements name the whole, and days that have no month yet go into the part for all others.

alter table usage rename to usage_before;
alter index usage_pkey rename to usage_before_pkey;
create table usage (
    key_id   text   collate "C" not null references keys on delete cascade,
    day      date   not null,
    -- Of the same name as the part's own, or the two are not taken for one.
    admitted bigint not null constraint usage_admitted_check check (admitted >= 0),
    primary key (key_id, day)
) partition by range (day);

alter table refusals rename to refusals_before;
alter index refusals_pkey rename to refusals_before_pkey;
create table refusals (
    key_id text   collate "C" not null references keys on delete cascade,
    day    date   not null,
    reason text   not null,
    count  bigint not null constraint refusals_count_check check (count > 0),
    primary key (key_id, day, reason)
) partition by range (day);

create table usage_other partition of usage default;
create table refusals_other partition of refusals default;

do $$
declare
    whole text;
    until date := (date_trunc('month', now() at time zone 'UTC') + interval '1 month')::date;
begin
    foreach whole in array array['usage', 'refusals'] loop
        -- A counter store whose clock was ahead may have left days of the future.
        execute format('with moved as (delete from %I where day >= %L returning *) insert into %I select * from moved',
            whole || '_before', until, whole || '_other');
        execute format('alter table %I attach partition %I for values from (minvalue) to (%L)', whole, whole || '_before', until);
    end loop;
end $$;

-- Makes the part of one month, and brings there what the part for all others holds of it.
create function make_month(whole text, month date) returns void language plpgsql as $$
declare
    part text := format('%s_%s', whole, to_char(month, 'YYYY_MM'));
    until date := (month + interval '1 month')::date;
begin
    if to_regclass(part) is not null then
        return;
    end if;
    execute format('create table %I (like %I including constraints)', part, whole);
    execute format('with moved as (delete from %I where day >= %L and day < %L returning *) insert into %I select * from moved',
        whole || '_other', month, until, part);
    execute format('alter table %I attach partition %I for values from (%L) to (%L)', whole, part, month, until);
exception
    -- The part from before months holds it.
    when invalid_object_definition then null;
end $$;

-- Makes the months to come, and lets go of those that are wholly older than so many days. With its owner's rights: whoever may write rows need not
-- be able to make tables.
create function tend_months(keep_days int) returns void language plpgsql security definer set search_path from current as $$
declare
    today date := (now() at time zone 'UTC')::date;
    whole text;
    part record;
begin
    if keep_days < 31 then
        raise exception 'usage is kept for 31 days at least, not for %', keep_days;
    end if;
    -- One node at a time. Whoever would have to wait for others leaves it to the next round, so that nobody waits behind it.
    if not pg_try_advisory_xact_lock(hashtextextended('ipseity: tend_months', 0)) then
        return;
    end if;
    perform set_config('lock_timeout', '200ms', true);
    foreach whole in array array['usage', 'refusals'] loop
        for ahead in 0..2 loop
            perform make_month(whole, (date_trunc('month', today) + make_interval(months => ahead))::date);
        end loop;
        for part in
            select c.relname as name, substring(pg_get_expr(c.relpartbound, c.oid) from 'TO \(''([0-9-]+)''\)')::date as until
            from pg_inherits i join pg_class c on c.oid = i.inhrelid
            where i.inhparent = whole::regclass
        loop
            if part.until <= today - keep_days then
                execute format('drop table %I', part.name);
            end if;
        end loop;
    end loop;
end $$;
