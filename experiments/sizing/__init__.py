"""How much memory a model and its sessions take, and how many sessions a GPU holds."""
