"""The Services and EndpointSlices of an application. Pure."""
