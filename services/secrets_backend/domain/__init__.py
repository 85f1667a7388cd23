"""The secrets protocol, and the authorization of its requests. Pure."""
