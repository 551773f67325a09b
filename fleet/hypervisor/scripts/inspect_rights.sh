# Whether a script runs here as it will have to: by this login and, where the site says so, by sudo.
echo fleet
