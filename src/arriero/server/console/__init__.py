"""The console: pages for operators, drawn from the answers of the API.

A page asks the operations of the API as its caller, so what it shows and offers is what the caller's scopes allow, and an act of a form
is the same operation as over HTTP or in the command line. No rule is here.
"""

from . import (  # noqa: F401  # each adds its pages
    acting,
    admin_pages,
    agent_pages,
    alert_list,
    audit_pages,
    bulk_verbs,
    convoy_pages,
    failures,
    files,
    inbox,
    ledger_list,
    live,
    overview,
    schedule_pages,
    sign_in,
    task_list,
    task_page,
    token_pages,
    typed_acts,
)
from .frame import render_problem as render_problem
from .page import console as console
