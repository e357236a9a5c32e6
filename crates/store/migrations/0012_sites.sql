-- Sites whose remote nodes home nodes trust, by the certificate that they present. Nodes read the list. Only the owner of the
-- schema changes it, so that a stolen login of a node cannot add a site.
create table sites (
    -- Also the DNS name in the certificate, so a hyphen is neither first nor last.
    name               text        collate "C" primary key check (name ~ '^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$'),
    certificate_sha256 bytea       not null unique check (octet_length(certificate_sha256) = 32),
    created_at         timestamptz not null default now()
);
