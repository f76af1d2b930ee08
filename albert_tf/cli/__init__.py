"""One module a command: flags become configurations, a task and a trainer; no logic here."""
