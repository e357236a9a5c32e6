//! Addresses and networks in settings. Errors show the value and an example.

use std::net::SocketAddr;

use ipnet::IpNet;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

pub(super) fn deserialize_address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    parse_address(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}

pub(super) fn deserialize_addresses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<SocketAddr>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| parse_address(text)).collect::<Result<_, _>>().map_err(D::Error::custom)
}

pub(super) fn deserialize_networks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpNet>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| parse_network(text)).collect::<Result<_, _>>().map_err(D::Error::custom)
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let example = if text.parse::<u16>().is_ok() {
        format!("127.0.0.1:{text} or [::]:{text}")
    } else {
        "127.0.0.1:8080 or [::]:8080".to_owned()
    };
    text.parse().map_err(|_| format!("{text:?} is not an IP address with a port. Use one such as {example},"))
}

fn parse_network(text: &str) -> Result<IpNet, String> {
    text.parse().map_err(|_| format!("{text:?} is not a network. Use one such as 10.0.0.0/8 or 10.0.0.7/32,"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_show_the_value_and_an_example() {
        for (text, words) in [
            ("9191", ["\"9191\" is not", "127.0.0.1:9191"]),
            ("localhost:80", ["\"localhost:80\" is not", "127.0.0.1:8080"]),
        ] {
            let error = parse_address(text).expect_err("rejected");
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
        assert!(parse_network("10.0.0.7").expect_err("rejected").contains("10.0.0.7/32"));
    }
}
