"""Renders the Helm chart with `helm`, and checks its values, its documentation and its objects.

The README's examples and full_values.yaml are the inputs.
"""

import copy
import json
import re
import shutil
import subprocess
import tempfile
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/ipseity"
README = (CHART / "README.md").read_text()
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())
FULL = yaml.safe_load((ROOT / "tools/deploy/full_values.yaml").read_text())


def has_helm():
    return shutil.which("helm") is not None


def example(mark):
    """The code block of the README with this mark."""
    return re.search(rf"^( *)```{mark}\n(.*?)^\1```$", README, re.MULTILINE | re.DOTALL)[2]


MINIMAL = yaml.safe_load(example("yaml values"))
SECRETS = list(yaml.safe_load_all(example("yaml secrets")))


def helm(command, values):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(values, file)
        file.flush()
        return subprocess.run([*command, "--values", file.name], capture_output=True, text=True, check=False)


def render(values):
    done = helm(["helm", "template", "ipseity", CHART, "--namespace", "ipseity"], values)
    if done.returncode:
        raise ValueError(done.stderr)
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def lint():
    for name, values in [("the README's values", MINIMAL), ("full_values.yaml", FULL)]:
        done = helm(["helm", "lint", "--strict", "--quiet", CHART], values)
        if done.returncode:
            yield f"{name}: {done.stdout}{done.stderr}"


def documents():
    """Every object that the chart and its README create, with where it comes from."""
    for document in SECRETS:
        yield "README.md", document
    for name, values in [("minimal", MINIMAL), ("full", FULL), ("geo", MINIMAL | yaml.safe_load(example("yaml geo")))]:
        for document in render(values):
            # A type of the Prometheus Operator, which Kubernetes has no schema of.
            if document["kind"] != "PodMonitor":
                yield f"{name} values: {document['kind']}", document


def leaves(schema, path=()):
    """The values that the schema allows, as paths."""
    for name, property in schema["properties"].items():
        if "properties" in property:
            yield from leaves(property, (*path, name))
        elif name != "global":
            yield (*path, name)


def get(values, path):
    for name in path:
        values = values[name]
    return values


def with_value(values, path, value):
    changed = copy.deepcopy(values)
    section = changed
    for name in path[:-1]:
        section = section.setdefault(name, {})
    section[path[-1]] = value
    return changed


def undocumented_values():
    """The schema, values.yaml, its comments and the README's table have the same values."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    allowed = {".".join(path) for path in leaves(schema)}
    table = set()
    for row in re.findall(r"^\| (`.*?) \|", README, re.MULTILINE):
        table |= set(re.findall(r"`([^`]+)`", row))
    yield from (f"the schema and the README's table differ in {name}" for name in sorted(allowed ^ table))
    commented, path, previous = set(), [], ""
    for line in (CHART / "values.yaml").read_text().splitlines():
        if key := re.match(r"( *)(\w+):", line):
            path = [*path[: len(key[1]) // 2], key[2]]
            if previous.lstrip().startswith("#"):
                commented.add(".".join(path))
        previous = line
    yield from (f"values.yaml has no comment for {name}" for name in sorted(allowed - commented))
    for path in leaves(schema):
        try:
            get(DEFAULTS, path)
        except KeyError:
            yield f"values.yaml lacks {'.'.join(path)}"
    for section in [schema, *(part for part in schema["properties"].values() if "properties" in part)]:
        if section.get("additionalProperties") is not False:
            yield "the schema allows unknown values"
    try:
        render(MINIMAL | {"unknown": 1})
        yield "an unknown value is accepted"
    except ValueError:
        pass


def unused_values():
    """Each value must change an object: when it is added to the minimal values, or removed from the full ones."""
    minimal, full = render(MINIMAL), render(FULL)
    for path in leaves(json.loads((CHART / "values.schema.json").read_text())):
        if get(DEFAULTS, path) == get(FULL, path):
            yield f"full_values.yaml has the default of {'.'.join(path)}"
            continue
        added = with_value(MINIMAL, path, get(FULL, path))
        if render(added) != minimal:
            continue
        if render(with_value(FULL, path, get(DEFAULTS, path))) == full:
            yield f"{'.'.join(path)} has no effect"


def unclear_errors():
    """What is missing or contradictory is an error that names the value."""
    cases = [(with_value(MINIMAL, path, get(DEFAULTS, path)), f"Set {'.'.join(path)} ") for path in [
        ("image", "repository"), ("baseUrl",), ("existingSecret",), ("tlsSecret",), ("networkPolicy", "egress"),
    ]]
    cases.append((MINIMAL | {"settings": "[edge]\nhttps = []"}, "Remove [edge] https from the value settings"))
    cases.append((MINIMAL | {"settings": "[store]\nurl = 'postgres:///ipseity'"}, "Remove [store] url from the value settings"))
    cases.append((MINIMAL | {"settings": "[edge"}, "The value settings is not valid TOML"))
    for values, expected in cases:
        try:
            render(values)
            yield f"no error: {expected}"
        except ValueError as error:
            if expected not in str(error):
                yield f"expected {expected!r}, got: {error}"


def fixed_settings(container):
    """The settings in the environment of a container, by section, as texts."""
    settings = {}
    for variable in container["env"]:
        if name := re.fullmatch(r"IPSEITY__([A-Z0-9]+)__([A-Z0-9_]+)", variable["name"]):
            settings.setdefault(name[1].lower(), {})[name[2].lower()] = variable["value"]
    return settings


def comparable(document):
    """An object without what may differ between both ways to install: names, labels, images and how settings are passed."""
    text = json.dumps(document, sort_keys=True)
    labels = r'"(app\.kubernetes\.io/(instance|version|managed-by)|helm\.sh/[a-z-]+|checksum/settings)": "[^"]*"(, )?'
    text = re.sub(r', (?=})', "", re.sub(labels, "", text)).replace("ipseity/stores", "ipseity/secrets")
    document = json.loads(text)
    document["metadata"].pop("annotations", None)
    document["metadata"].pop("namespace", None)
    pod = document.get("spec", {}).get("template", {})
    pod.get("metadata", {}).pop("annotations", None)
    for container in pod.get("spec", {}).get("containers", []):
        container["image"] = "ipseity"
        container["env"] = [variable for variable in container["env"] if variable["name"] == "IPSEITY_CONFIG"]
        for mount in container["volumeMounts"]:
            mount["name"] = mount["name"].replace("stores", "secrets")
    for volume in pod.get("spec", {}).get("volumes", []):
        volume["name"] = volume["name"].replace("stores", "secrets")
        volume.get("secret", {}).pop("items", None)
    if document["kind"] == "Job":
        # A hook runs before the service account exists.
        pod["spec"].pop("serviceAccountName", None)
    if document["kind"] == "NetworkPolicy":
        # The destinations are examples, except for DNS.
        document["spec"]["egress"] = document["spec"]["egress"][:1]
    return document


def differences(manifests):
    """The chart's objects, with the README's values, are those of the manifests for kustomize."""
    rendered = {document["kind"]: document for document in render(MINIMAL)}
    for _, manifest in manifests:
        kind = manifest["kind"]
        if kind in ("Kustomization", "Namespace"):
            continue
        if kind not in rendered:
            yield f"the chart has no {kind}"
        elif (ours := comparable(rendered[kind])) != (theirs := comparable(manifest)):
            yield f"{kind} differs:\n{json.dumps(ours, sort_keys=True)}\n{json.dumps(theirs, sort_keys=True)}"
    expected = tomllib.loads((ROOT / "deploy/kubernetes/ipseity.toml").read_text())
    for settings in expected.values():
        for name, value in settings.items():
            text = ",".join(value) if isinstance(value, list) else str(value)
            settings[name] = text.replace("/stores/", "/secrets/")
    settings = fixed_settings(rendered["Deployment"]["spec"]["template"]["spec"]["containers"][0])
    if settings != expected:
        yield f"the settings differ: {settings} and {expected}"


def broken_references():
    """What the README's example names exists, and what selects pods selects them."""
    secrets = {document["metadata"]["name"]: document["stringData"] for document in SECRETS if document["kind"] == "Secret"}
    for value, keys in [("existingSecret", ["store-url", "ledger-url"]), ("tlsSecret", ["tls.crt", "tls.key"])]:
        if sorted(secrets.get(MINIMAL[value], {})) != sorted(keys):
            yield f"the README's secret for {value} does not have the keys {keys}"
    commands = re.sub(r"\\\n\s*", "", example("sh install")).splitlines()
    if len(commands) != 3:
        yield f"the README needs {len(commands)} commands instead of three"
    objects = {document["kind"]: document["spec"] for document in render(with_value(MINIMAL, ("podMonitor", "enabled"), True)) if "spec" in document}
    pod = objects["Deployment"]["template"]
    for kind, selector in [
        ("Service", objects["Service"]["selector"]),
        ("PodDisruptionBudget", objects["PodDisruptionBudget"]["selector"]["matchLabels"]),
        ("NetworkPolicy", objects["NetworkPolicy"]["podSelector"]["matchLabels"]),
        ("PodMonitor", objects["PodMonitor"]["selector"]["matchLabels"]),
    ]:
        if not selector.items() <= pod["metadata"]["labels"].items():
            yield f"{kind} does not select the pods"
    ports = {port["name"] for port in pod["spec"]["containers"][0]["ports"]}
    if not {endpoint["port"] for endpoint in objects["PodMonitor"]["podMetricsEndpoints"]} <= ports:
        yield "the PodMonitor names a port that the pods do not have"
    job = next(document for document in render(MINIMAL) if document["kind"] == "Job")
    if job["metadata"].get("annotations", {}).get("helm.sh/hook") != "pre-install,pre-upgrade":
        yield "the schema is not migrated before the pods start"
    roll = [with_value(MINIMAL, ("settings",), f"[log]\nlevel = \"{level}\"") for level in ("info", "debug")]
    templates = [next(d["spec"]["template"] for d in render(values) if d["kind"] == "Deployment") for values in roll]
    if templates[0] == templates[1]:
        yield "changed settings do not replace the pods"
