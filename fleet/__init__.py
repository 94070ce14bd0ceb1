"""fleet: a declarative reconciler for the build machines of a distribution."""
