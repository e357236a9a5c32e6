//! `reference_server LISTEN BODY [--tls LISTEN CHAIN KEY] [--redis URL]`: a bare server that does less than the
//! service, for comparison.
//!
//! It responds to `/api/v1/ip` with the bytes of a file: immediately (*static*), or after one script call on a
//! multiplexed connection (*floor*). Over TLS it supports HTTP/1.1, HTTP/2 and, on the same UDP port, HTTP/3, with the
//! same libraries as the service.

mod floor;
mod quic;
mod tls;

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use axum::Router;
use axum::http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, CONTENT_TYPE};
use axum::response::IntoResponse;
use axum::routing::get;
use bytes::Bytes;
use tokio::net::TcpListener;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PATH: &str = "/api/v1/ip";

struct ReferenceServerOptions {
    listen: SocketAddr,
    body: PathBuf,
    tls: Option<ReferenceTlsOptions>,
    redis: Option<String>,
}

struct ReferenceTlsOptions {
    listen: SocketAddr,
    chain: PathBuf,
    key: PathBuf,
}

fn parse_options() -> Result<ReferenceServerOptions> {
    let mut arguments = std::env::args().skip(1);
    let mut next =
        || arguments.next().context("usage: reference_server LISTEN BODY [--tls LISTEN CHAIN KEY] [--redis URL]");
    let mut options = ReferenceServerOptions { listen: next()?.parse()?, body: next()?.into(), tls: None, redis: None };
    while let Ok(argument) = next() {
        match argument.as_str() {
            "--tls" => {
                options.tls =
                    Some(ReferenceTlsOptions { listen: next()?.parse()?, chain: next()?.into(), key: next()?.into() })
            }
            "--redis" => options.redis = Some(next()?),
            other => bail!("unknown argument {other}"),
        }
    }
    Ok(options)
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = parse_options()?;
    // As cheap to share as a constant.
    let body = Bytes::from_static(std::fs::read(options.body)?.leak());
    let router = match &options.redis {
        Some(url) => floor::router(url, body.clone()).await?,
        None => {
            let body = body.clone();
            Router::new().route(PATH, get(async move || success_response(body.clone())))
        }
    };
    if let Some(secure) = options.tls {
        let pair = tls::ReferenceCertificate::read(&secure.chain, &secure.key)?;
        tokio::spawn(tls::serve(TcpListener::bind(secure.listen).await?, pair.config(tls::ALPN_TCP)?, router.clone()));
        tokio::spawn(quic::serve(quic::bind(secure.listen, pair.config(tls::ALPN_QUIC)?)?, body));
    }
    let listener = TcpListener::bind(options.listen).await?;
    Ok(axum::serve(listener, router).await?)
}

fn success_response(body: Bytes) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json"), (ACCESS_CONTROL_ALLOW_ORIGIN, "*")], body)
}
