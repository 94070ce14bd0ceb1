"""This module lets Debusine use the rule of fleet; `matching` has it as Django `Q`."""
