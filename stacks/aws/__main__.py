"""Let the plain `pulumi` command run the stack from its own configuration."""

import pulumi
from program import program

config = pulumi.Config()
program(
    {
        "workers": config.require_object("workers"),
        # A secret in the configuration; the program declares each text secret again.
        "user_data": config.get_object("user_data") or {},
        "templates": config.get_object("templates") or [],
        "adopt": config.get_object("adopt") or {},
        "owner": config.get_object("owner") or {},
    }
)
