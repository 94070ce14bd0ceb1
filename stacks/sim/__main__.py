"""Let the plain `pulumi` command run the stack from its own configuration."""

import pulumi
from program import program

config = pulumi.Config()
program(
    {
        "workers": config.require_object("workers"),
        "adopt": config.get_object("adopt") or {},
        "owner": config.get_object("owner") or {},
    }
)
