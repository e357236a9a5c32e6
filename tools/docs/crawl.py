"""Follows every link and anchor, starting with the landing page, the sitemap and llms.txt, and the links of every error."""

import html.parser
import json
import re
import urllib.parse
import xml.etree.ElementTree as ElementTree

# Paths that need a session, change something or are charged.
NOT_FOLLOWED = ("/signout", "/api/v1/ip")
SEEDS = ["/", "/docs", "/reference", "/enterprise", "/sitemap.xml", "/llms.txt", "/robots.txt", "/favicon.ico",
         "/.well-known/security.txt", "/.well-known/api-catalog", "/api/v1/openapi.json", "/api/v1/openapi.yaml"]
HEADINGS = {"h1", "h2", "h3", "h4"}


class Page(html.parser.HTMLParser):
    """Links, ids and headings of a page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.ids, self.duplicate_ids, self.headings = [], set(), [], {}
        self.heading = None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if "id" in attributes:
            (self.duplicate_ids.append if attributes["id"] in self.ids else self.ids.add)(attributes["id"])
        if tag in HEADINGS:
            self.heading = attributes.get("id")
            self.headings.setdefault(self.heading, "")
        names = ("href", "src") if tag != "form" or attributes.get("method") != "get" else ("action",)
        self.links += [attributes[name] for name in names if attributes.get(name)]
        if attributes.get("property") in ("og:url", "og:image"):
            self.links.append(attributes["content"])

    def handle_data(self, text):
        if self.heading:
            self.headings[self.heading] += text

    def handle_endtag(self, tag):
        if tag in HEADINGS:
            self.heading = None


def links_in(kind, body):
    """Returns the links of a document, and the page if it has ids."""
    text = body.decode(errors="replace")
    if kind.startswith("text/html"):
        page = Page(text)
        return page.links, page
    if kind.startswith("application/xml"):
        return [element.text for element in ElementTree.fromstring(text).iter() if element.tag.endswith("loc")], None
    if kind.startswith("application/linkset"):
        return re.findall(r'"href":"([^"]+)"', text), None
    if kind.startswith(("text/markdown", "text/plain")):
        without_code = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.S)
        page = Page(without_code)
        page.ids |= set(re.findall(r"\{#(\S+?)\}", without_code))
        return re.findall(r"\]\((\S+?)\)|(?:Policy|Canonical|Sitemap): (\S+)", without_code), page
    return [], None


class Crawler:
    """Follows the links of a deployment."""

    def __init__(self, deployment):
        self.deployment = deployment
        self.seen, self.wanted, self.dead, self.external = {}, {}, [], set()

    def crawl(self):
        """Follows every link and returns the dead ones."""
        queue = [(seed, "the start list") for seed in SEEDS]
        while queue:
            path, origin = queue.pop()
            if path in self.seen:
                continue
            status, headers, body = self.deployment.request(path)
            links, page = links_in(headers.get("content-type", ""), body)
            self.seen[path] = page
            if status not in (200, 303) and not (status == 401 and path == "/api/v1/ip"):
                self.dead.append(f"{path} returns {status} (linked from {origin})")
            if page and page.duplicate_ids:
                self.dead.append(f"{path} has duplicate ids: {page.duplicate_ids}")
            for link in links:
                link = "".join(link) if isinstance(link, tuple) else link
                queue += self.follow(path, link)
        for (path, anchor), origin in self.wanted.items():
            page = self.seen.get(path)
            if page is None or anchor not in page.ids:
                self.dead.append(f"{path}#{anchor} does not exist (linked from {origin})")
        return self.dead

    def follow(self, path, link):
        """Returns the path of an internal link and records its anchor."""
        absolute = urllib.parse.urljoin(self.deployment.portal + path, link)
        address, _, anchor = absolute.partition("#")
        if not (address == self.deployment.portal or address.startswith(self.deployment.portal + "/")):
            self.external.add(address)
            return []
        target = address[len(self.deployment.portal):] or "/"
        if anchor:
            self.wanted.setdefault((target, urllib.parse.unquote(anchor)), path)
        return [] if target.startswith(NOT_FOLLOWED) else [(target, path)]


def check_error_links(deployment, document):
    """Checks that every error links to a heading with its code; returns the number of errors and the failures."""
    bodies = []
    for path in document["paths"].values():
        for response in (path.get("get") or path["post"])["responses"].values():
            for content in response["content"].values():
                bodies += [example["value"] for example in content.get("examples", {}).values() if "error" in example["value"]]
    inactive = deployment.issue_keys(1, "ip")[0]
    deployment.cli("key", "deactivate", inactive["id"])
    requests = [("/api/v1/ip", "GET"), ("/api/v1/ip?key=x", "GET"), (f"/api/v1/ip?key={inactive['key']}", "GET"), ("/nowhere", "GET"),
             ("/api/v1/ip", "DELETE"), ("/?" + "x" * 5000, "GET")]
    bodies += [json.loads(deployment.request(path, method)[2]) for path, method in requests]
    wrong = []
    for body in bodies:
        path, _, anchor = body["docs"].removeprefix(deployment.portal).partition("#")
        status, _, text = deployment.request(path)
        heading = Page(text.decode()).headings.get(anchor, "")
        if status != 200 or body["error"] not in heading:
            wrong.append(f"{body['docs']} returns {status} with the heading “{heading}”, which lacks {body['error']}")
        for name in ("signup", "enterprise"):
            if name in body and deployment.request(body[name].removeprefix(deployment.portal))[0] != 200:
                wrong.append(f"{name} of {body['error']} leads to {body[name]}")
    return len(bodies), wrong
