"""The bundled policies, one file each."""
