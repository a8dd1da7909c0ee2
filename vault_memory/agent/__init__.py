"""What an agent's host needs: the launcher, the second memory layer, hooks, the journal."""
