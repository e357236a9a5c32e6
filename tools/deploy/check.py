"""Validates the files of deploy/ against their schemas, and their settings against default.toml.

Checks that need a container engine or a cluster are not included.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import kubernetes_validate
import yaml

KUBERNETES = ["1.31.0", "1.37.0"]
ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
failures = []


def claim(text, problems):
    print(f"  {'FAILED' if problems else 'ok':7} {text}")
    failures.extend(problems)
    for problem in problems:
        print(f"          {problem}")


def run(*command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return [] if done.returncode == 0 else [f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"]


def manifests():
    for file in sorted((DEPLOY / "kubernetes").glob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text()):
            yield file.name, document


def invalid_manifests(version):
    for name, document in manifests():
        if document["kind"] == "Kustomization":
            continue
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            yield f"{name}: {'.'.join(map(str, error.path))}: {error.message}"


def unlisted_manifests():
    """The kustomization must list exactly the manifests in its directory."""
    listed = {name for _, document in manifests() if document["kind"] == "Kustomization" for name in document["resources"]}
    existing = {name for name, document in manifests() if document["kind"] != "Kustomization"}
    return [f"kustomization.yaml and the directory differ in {name}" for name in sorted(listed ^ existing)]


def unknown_settings(known):
    files = [file for file in DEPLOY.rglob("*") if file.is_file()]
    for file in files:
        for section, setting in re.findall(r"IPSEITY__([A-Z0-9]+)__([A-Z0-9_]+)", file.read_text()):
            if (section, setting) == ("SECTION", "SETTING"):
                continue
            if setting.lower() not in known.get(section.lower(), {}):
                yield f"{file.relative_to(ROOT)}: unknown setting [{section.lower()}] {setting.lower()}"
    texts = {"debian/ipseity.toml": (DEPLOY / "debian/ipseity.toml").read_text()}
    texts |= {f"kubernetes/{name}": document["data"]["ipseity.toml"] for name, document in manifests() if document["kind"] == "ConfigMap"}
    for name, text in texts.items():
        for section, settings in tomllib.loads(text).items():
            for setting in settings:
                if setting not in known.get(section, {}):
                    yield f"{name}: unknown setting [{section}] {setting}"


def unpinned():
    """Workflows and the Dockerfile name actions by commit and images by digest, the same one for the same image."""
    digests = {}
    for file in [*sorted((ROOT / ".github/workflows").glob("*.yaml")), DEPLOY / "container/Dockerfile"]:
        text = file.read_text()
        for action in re.findall(r"uses: (\S+)", text):
            if not re.search(r"@[0-9a-f]{40}$", action):
                yield f"{file.name}: {action} has no commit"
        for image in re.findall(r"^\s*(?:image:|FROM|SYFT:) (\S+)", text, re.MULTILINE):
            name, _, digest = image.partition("@")
            if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
                yield f"{file.name}: {image} has no digest"
            elif digests.setdefault(name, digest) != digest:
                yield f"{file.name}: {name} has another digest than elsewhere"
    toolchain = tomllib.loads((ROOT / "rust-toolchain.toml").read_text())["toolchain"]["channel"]
    for name in digests:
        if name.startswith("rust:") and not name.startswith(f"rust:{toolchain}-"):
            yield f"{name} is not the version of rust-toolchain.toml, {toolchain}"


def main():
    known = tomllib.loads((ROOT / "crates/server/src/config/default.toml").read_text())
    claim("every setting in deploy/ exists in default.toml", list(unknown_settings(known)))
    for version in KUBERNETES:
        claim(f"the manifests are valid for Kubernetes {version}", list(invalid_manifests(version)))
    claim("the kustomization lists every manifest", unlisted_manifests())
    claim("the compose file is valid", run("check-jsonschema", "--builtin-schema", "vendor.compose-spec", "deploy/container/compose.yaml"))
    claim("actions and images are pinned", list(unpinned()))
    claim("hadolint finds nothing in the Dockerfile", run("hadolint", "deploy/container/Dockerfile"))
    scripts = [*sorted((ROOT / "tools").rglob("*.sh")), ROOT / ".ci/run", ROOT / ".ci/install", *sorted((DEPLOY / "debian").glob("p*")), DEPLOY / "debian/ipseityctl"]
    scripts = [script for script in scripts if "node_modules" not in script.parts]
    claim("shellcheck finds nothing in the scripts", run("shellcheck", "--severity=warning", *scripts))
    workflows = sorted((ROOT / ".github/workflows").glob("*.yaml"))
    claim("the workflows are valid", run("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *workflows))
    dependabot = ROOT / ".github/dependabot.yml"
    claim("the configuration of updates is valid", run("check-jsonschema", "--builtin-schema", "vendor.dependabot", dependabot))
    claim("zizmor finds no vulnerability in them", run("zizmor", "--offline", "--quiet", *workflows, dependabot))
    print(f"deploy: {len(failures)} problems")
    sys.exit(bool(failures))


main()
