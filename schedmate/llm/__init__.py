"""The only door to a chat model; no secret leaves through it, nothing untrusted speaks."""
