"""The smallest workflow with a tool, a validator and a policy: an agent looks, and is done when it has said so."""

from __future__ import annotations

WORKFLOW = """
name: one
agents: {a: {provider: model, model: small, prompt: main}}
stages:
  - {name: work, agent: a, tools: [look], validators: [said]}
prompts: {main: "Task: {goal}"}
validators: [{name: said, predicate: 'output != ""'}]
policy:
  rules:
    - {id: no-y, decision: DENY, when: 'call.arguments.what == "y"'}
"""
SCRIPT = """
- match: work.1/t1/i
  calls: [{name: look, arguments: {what: x}}]
- match: work.1/t2/i
  calls: [{name: look, arguments: {what: z}}]
- match: work.1/t3/i
  text: done
"""
TOOLS = '''
from dalsegno.harness.tools import tool

def seen(what: str) -> str:
    return f"saw {what}"

@tool(effect="READ", simulation=seen)
def look(what: str) -> str:
    """Look at something."""
    return f"saw {what}"
'''
