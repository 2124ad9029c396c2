"""What people look at: dashboards, alerts and provisioning of Grafana, generated from Python."""
