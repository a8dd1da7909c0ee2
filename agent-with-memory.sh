#!/bin/sh
# Starts claude with what the notes say about a task: agent-with-memory.sh "the task" [-- claude's arguments]
# A thin wrapper of `vault-memory agent`, for whoever calls it from scripts and key bindings.
exec "${VAULT_MEMORY_COMMAND:-vault-memory}" agent run "$@"
