"""The OpenAPI document itself: both forms say the same, and every example is what its schema says."""

import jsonschema
import yaml


def examples_of(node, place=""):
    """Every schema that has examples beside or within it, with those examples."""
    if isinstance(node, dict):
        schema = node.get("schema", node if "type" in node else None)
        if schema is not None:
            examples = [value["value"] for value in node.get("examples", {}).values()] if isinstance(node.get("examples"), dict) else []
            examples += node["examples"] if isinstance(node.get("examples"), list) else []
            examples += [node["example"]] if "example" in node else []
            for example in examples:
                yield place, schema, example
        for name, inner in node.items():
            # What an example holds is no schema.
            if name not in ("examples", "example"):
                yield from examples_of(inner, f"{place}/{name}")
    elif isinstance(node, list):
        for number, inner in enumerate(node):
            yield from examples_of(inner, f"{place}/{number}")


def check(document, as_yaml):
    """Gives how many examples there are, and what is wrong."""
    wrong = [] if yaml.safe_load(as_yaml) == document else ["openapi.yaml and openapi.json differ"]
    count = 0
    for place, schema, example in examples_of(document):
        count += 1
        whole = {**schema, "components": document["components"]}
        for error in jsonschema.Draft202012Validator(whole, format_checker=jsonschema.FormatChecker()).iter_errors(example):
            wrong.append(f"{place}: {error.message}")
    return count, wrong
