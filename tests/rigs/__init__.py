"""The rigs: how tests run the real parts on this computer."""
