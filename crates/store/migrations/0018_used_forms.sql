-- Forms that create a secret and were sent. They work once, so that reloading the page of a secret creates no other.
create table used_forms (
    session_id bigint not null references sessions on delete cascade,
    digest     bytea  not null check (octet_length(digest) = 32),
    primary key (session_id, digest)
);
