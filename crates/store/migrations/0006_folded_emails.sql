-- Email addresses are stored as ipseity_domain::account::EmailAddress writes them: ASCII, in lower case. They are compared
-- byte by byte. lower() of the database's locale does not decide which account an address belongs to: with UTF-8 it maps
-- U+0130 to i and U+212A to k.

-- Nodes of the previous version store addresses as typed until the last of them is replaced. For ASCII, this is what
-- EmailAddress does. It also locks both tables against writes until this migration commits.
create function fold_email() returns trigger language plpgsql as $$
begin
    new.email := lower(new.email collate "C");
    return new;
end $$;

create trigger account_email_folded before insert or update of email on accounts
    for each row execute function fold_email();
create trigger ticket_email_folded before insert or update of email on tickets
    for each row execute function fold_email();

-- The messages contain ids, not addresses, because PostgreSQL logs them.
do $check$
declare
    fix constant text := 'Set another address (update accounts set email = ''NEW'' where id = ID), or delete the account '
        '(delete from accounts where id = ID). Then run `ipseity migrate` again.';
    ids text;
begin
    select string_agg(id::text, ', ' order by id) into ids from accounts
    where lower(email collate "C") !~
        '^[a-z0-9!#$%&''*+/=?^_`{|}~-]+(\.[a-z0-9!#$%&''*+/=?^_`{|}~-]+)*@[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$';
    if ids is not null then
        raise exception using errcode = 'IP001', message = format(
            'these accounts have an email address that is no longer accepted: %s. Accepted are addresses such as '
            'you@example.com, without a name, quotes or comments. Write an international domain in its ASCII form (xn--...). %s',
            ids, fix);
    end if;
    select string_agg(id::text, ', ' order by id) into ids from accounts
    where lower(email collate "C") in (
        select lower(email collate "C") from accounts group by lower(email collate "C") having count(*) > 1);
    if ids is not null then
        raise exception using errcode = 'IP001', message = format(
            'these accounts have the same email address, apart from upper and lower case: %s. Only one account can keep an '
            'address. %s', ids, fix);
    end if;
end $check$;

update accounts set email = lower(email collate "C") where email <> lower(email collate "C");
update tickets set email = lower(email collate "C") where email <> lower(email collate "C");

-- The indexes on lower(email) stay for nodes of the previous version.
create unique index accounts_email_bytes on accounts (email collate "C");
create index tickets_email_bytes on tickets (email collate "C");
