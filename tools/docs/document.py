"""Checks the OpenAPI document: JSON and YAML are equal, and every example matches its schema."""

import jsonschema
import yaml


def examples_of(node, place=""):
    """Yields every example with its schema."""
    if isinstance(node, dict):
        schema = node.get("schema", node if "type" in node else None)
        if schema is not None:
            examples = [value["value"] for value in node.get("examples", {}).values()] if isinstance(node.get("examples"), dict) else []
            examples += node["examples"] if isinstance(node.get("examples"), list) else []
            examples += [node["example"]] if "example" in node else []
            for example in examples:
                yield place, schema, example
        for name, inner in node.items():
            # An example contains no schemas.
            if name not in ("examples", "example"):
                yield from examples_of(inner, f"{place}/{name}")
    elif isinstance(node, list):
        for number, inner in enumerate(node):
            yield from examples_of(inner, f"{place}/{number}")


def check(document, as_yaml):
    """Returns the number of examples and the failures."""
    failures = [] if yaml.safe_load(as_yaml) == document else ["openapi.yaml and openapi.json differ"]
    count = 0
    for place, schema, example in examples_of(document):
        count += 1
        whole = {**schema, "components": document["components"]}
        for error in jsonschema.Draft202012Validator(whole, format_checker=jsonschema.FormatChecker()).iter_errors(example):
            failures.append(f"{place}: {error.message}")
    return count, failures
