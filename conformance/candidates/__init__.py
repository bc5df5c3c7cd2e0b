"""From a target to callable roles: locating, the worker and its wire, binding, conventions."""
