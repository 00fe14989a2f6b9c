"""One module a command or command group; `schedmate.cli` puts them together."""
