"""Parts of the deployment under Ray."""
