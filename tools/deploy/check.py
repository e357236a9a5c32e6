"""Validates the files of deploy/ against their schemas, and their settings against default.toml.

Checks that need a container engine or a cluster are not included.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import helm_chart
import kubernetes_validate
import yaml

KUBERNETES = ["1.31.0", "1.34.0", "1.37.0"]
# What the Pod Security standard `restricted` allows.
RESTRICTED_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret"}
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


def objects():
    """The objects of the manifests and of the chart, with where each comes from."""
    yield from ((name, document) for name, document in manifests() if document["kind"] != "Kustomization")
    if helm_chart.has_helm():
        yield from helm_chart.documents()


def invalid_objects(version):
    for name, document in objects():
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
    for file in DEPLOY.rglob("*.toml"):
        name = file.relative_to(DEPLOY)
        for section, settings in tomllib.loads(file.read_text()).items():
            for setting in settings:
                if setting not in known.get(section, {}):
                    yield f"{name}: unknown setting [{section}] {setting}"


def pods():
    for name, document in objects():
        if pod := document.get("spec", {}).get("template", {}).get("spec"):
            yield name, pod


def unrestricted_pods():
    """What the Pod Security standard `restricted` rejects, and a writable root file system."""
    for name, pod in pods():
        context = pod.get("securityContext", {})
        if not context.get("runAsNonRoot") or not context.get("runAsUser") or context.get("seccompProfile") != {"type": "RuntimeDefault"}:
            yield f"{name}: the security context of the pod"
        if pod.keys() & {"hostNetwork", "hostPID", "hostIPC"} or pod.get("enableServiceLinks", True) or pod.get("automountServiceAccountToken", True):
            yield f"{name}: the pod has access to the host, to service links or to a token"
        for volume in pod["volumes"]:
            if not volume.keys() - {"name"} <= RESTRICTED_VOLUMES:
                yield f"{name}: the type of the volume {volume['name']}"
        for container in [*pod.get("initContainers", []), *pod["containers"]]:
            expected = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
            if container.get("securityContext") != expected:
                yield f"{name}: the security context of the container {container['name']}"
            if "limits" not in container["resources"]:
                yield f"{name}: the container {container['name']} has no limits"


def unreadable_secrets():
    """A secret with a mode for its group is readable only for pods with that group."""
    for name, pod in pods():
        modes = [volume["secret"].get("defaultMode", 0o644) for volume in pod["volumes"] if "secret" in volume]
        if any(mode & 0o004 == 0 for mode in modes) and "fsGroup" not in pod["securityContext"]:
            yield f"{name}: the pod has no fsGroup and cannot read its secrets"


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


def check_chart():
    claim("helm lint finds nothing in the chart", list(helm_chart.lint()))
    claim("every value of the chart is documented, and others are rejected", list(helm_chart.undocumented_values()))
    claim("every value of the chart has an effect", list(helm_chart.unused_values()))
    claim("what the chart lacks is a clear error", list(helm_chart.unclear_errors()))
    claim("the chart and the manifests have the same objects", list(helm_chart.differences(manifests())))
    claim("names and selectors of the chart match", list(helm_chart.broken_references()))


def main():
    known = tomllib.loads((ROOT / "crates/server/src/config/default.toml").read_text())
    claim("every setting in deploy/ exists in default.toml", list(unknown_settings(known)))
    if helm_chart.has_helm():
        check_chart()
    else:
        print("  skipped the Helm chart: helm is not installed, and requirements.txt has it for x86-64 only")
    for version in KUBERNETES:
        claim(f"the objects are valid for Kubernetes {version}", list(invalid_objects(version)))
    claim("the kustomization lists every manifest", unlisted_manifests())
    claim("every pod meets the Pod Security standard `restricted`", list(unrestricted_pods()))
    claim("every pod can read its secrets", list(unreadable_secrets()))
    claim("the compose file is valid", run("check-jsonschema", "--builtin-schema", "vendor.compose-spec", "deploy/container/compose.yaml"))
    claim("actions and images are pinned", list(unpinned()))
    claim("hadolint finds nothing in the Dockerfile", run("hadolint", "deploy/container/Dockerfile"))
    scripts = [*sorted((ROOT / "tools").rglob("*.sh")), ROOT / ".ci/run", ROOT / ".ci/install", *sorted((DEPLOY / "debian").glob("p*")), DEPLOY / "debian/ipseityctl", DEPLOY / "debian/ipseity-setup"]
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
