"""What several commands share: errors, options, output, settings."""
