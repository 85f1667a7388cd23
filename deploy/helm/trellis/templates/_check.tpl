{{/* Values without the chart's own defaults: Helm leaves them out where it reuses those of a former chart. */}}
{{- define "trellis.defaultsCheck" -}}
{{- range list "image" "services" "bundle" "pods" "installers" "secrets" "controllers" "crds" "nats" "networkPolicies" "uninstall" "kwasmOperator" -}}
{{- if not (kindIs "map" (get $.Values .)) -}}
{{- fail (printf "%s: has no defaults, as --reuse-values keeps those of the former chart: give helm --reset-then-reuse-values" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What a schema cannot say: values that do not go together. */}}
{{- define "trellis.check" -}}
{{- include "trellis.kwasmCheck" . -}}
{{- $v := .Values -}}
{{- if eq $v.installers.namespace .Release.Namespace -}}
{{- fail "installers.namespace: is that of the installation; privileged Jobs need one of their own" -}}
{{- end -}}
{{- if and $v.services.hostManager.enabled $v.services.hostManager.watchNamespaces -}}
{{- range $service, $its := $v.services -}}
{{- if and $its.enabled (ne $service "hostManager") -}}
{{- fail (printf "services.hostManager.watchNamespaces: needs services.%s.enabled=false: what is confined counts as a cluster of its own on the bus, and the other services look at the whole one" $service) -}}
{{- end -}}
{{- end -}}
{{- if eq $v.mode "bundle" -}}
{{- fail "services.hostManager.watchNamespaces: needs mode services" -}}
{{- end -}}
{{- end -}}
{{- $replicas := ternary $v.bundle.replicas $v.services.controllerHost.replicas (eq $v.mode "bundle") -}}
{{- if and $v.services.controllerHost.enabled $v.controllers.snapshots.existingClaim (gt (int $replicas) 1) -}}
{{- fail "controllers.snapshots.existingClaim: needs one replica: a snapshot is of one process" -}}
{{- end -}}
{{- include "trellis.consoleCheck" . -}}
{{- if and $v.wadm.enabled (not $v.latticeNats.enabled) (empty $v.wadm.nats.url) -}}
{{- fail "wadm.nats.url: needs the address of the lattices' NATS, as latticeNats.enabled is false" -}}
{{- end -}}
{{- if and $v.latticeNats.enabled $v.wadm.nats.url -}}
{{- fail "wadm.nats.url: is for a server of your own: set latticeNats.enabled to false" -}}
{{- end -}}
{{- if and $v.collector.enabled (not $v.jaeger.enabled) (empty $v.collector.endpoint) -}}
{{- fail "collector.endpoint: needs the address where traces are kept, as jaeger.enabled is false" -}}
{{- end -}}
{{- if and (not $v.nats.enabled) (empty $v.nats.url) -}}
{{- fail "nats.url: needs the address of a NATS server with JetStream, as nats.enabled is false" -}}
{{- end -}}
{{- if and $v.nats.enabled (or $v.nats.url $v.nats.seedsSecret) -}}
{{- fail "nats.url, nats.seedsSecret: are for a server of your own: set nats.enabled to false" -}}
{{- end -}}
{{- end -}}
