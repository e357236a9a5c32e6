//! The content security policy of the pages.

use http::HeaderValue;

/// Allows no other origin and nothing inline.
const CSP: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; font-src 'self'; \
     connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The policy of all pages but the landing page.
pub(crate) const PAGE_CSP: HeaderValue = HeaderValue::from_static(CSP);

/// The policy of a page whose scripts request these URLs too.
pub(crate) fn csp_with_requests_to(urls: &[String]) -> HeaderValue {
    let connect = format!("connect-src 'self' {};", urls.join(" "));
    HeaderValue::try_from(CSP.replace("connect-src 'self';", &connect)).unwrap_or(PAGE_CSP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_to_the_urls_are_added() {
        let urls = ["https://v4.example.com", "https://v6.example.com"].map(str::to_owned);
        let csp = csp_with_requests_to(&urls);
        let csp = csp.to_str().expect("ASCII");
        assert!(csp.contains("connect-src 'self' https://v4.example.com https://v6.example.com; form-action"), "{csp}");
        assert_eq!(csp.replace(" https://v4.example.com https://v6.example.com", ""), CSP);
        let invalid = csp_with_requests_to(&["https://v4.example.com\n".to_owned()]);
        assert_eq!(invalid, PAGE_CSP);
    }
}
