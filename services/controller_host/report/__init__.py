"""Status, Events and bus events of controllers."""
