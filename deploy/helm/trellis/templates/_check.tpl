{{/* Fail if values lack the chart's defaults: Helm drops the default of a key without a value, and with --reuse-values it
     keeps the defaults of the previous chart. */}}
{{- define "trellis.defaultsCheck" -}}
{{- $maps := list "global" "image" "services" "bundle" "pods" "installers" "defaultShim" "secrets" "controllers" "crds" "nats" "networkPolicies" "uninstall" "kwasmOperator" "tracing" "jaeger" "collector" "monitoring" "latticeNats" "wadm" -}}
{{- $maps = concat $maps (list "services.nodeWatcher" "services.provisioner" "services.hostManager" "services.serviceReflector" "services.applicationManager" "services.secretsBackend" "services.controllerHost") -}}
{{- $maps = concat $maps (list "pods.serviceAccount" "installers.image" "defaultShim.sha256" "controllers.snapshots") -}}
{{- $maps = concat $maps (list "nats.image" "nats.storage" "nats.tls" "nats.tls.certManager" "nats.tls.certManager.issuerRef" "nats.tls.reloader") -}}
{{- $maps = concat $maps (list "jaeger.image" "jaeger.storage" "collector.image" "collector.authorization" "latticeNats.image" "latticeNats.storage" "wadm.image" "wadm.nats") -}}
{{- $maps = concat $maps (list "monitoring.podMonitor" "monitoring.serviceMonitor" "monitoring.prometheusRule" "monitoring.dashboard") -}}
{{- if dig "console" dict (.Values.services | default dict) -}}
{{- $maps = concat $maps (list "services.console.proxy" "services.console.ingress" "services.console.httpRoute") -}}
{{- end -}}
{{- range $name := $maps -}}
{{- $found := $.Values -}}
{{- range splitList "." $name }}{{ $found = get $found . }}{{ end -}}
{{- if not (kindIs "map" $found) -}}
{{- fail (printf "%s: has no defaults, because the key has no value: remove it; or because --reuse-values keeps those of the previous chart: give helm --reset-then-reuse-values" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Fail on combinations of values that the schema cannot reject. */}}
{{- define "trellis.check" -}}
{{- include "trellis.kwasmCheck" . -}}
{{- include "trellis.imageCheck" . -}}
{{- $v := .Values -}}
{{- if eq $v.installers.namespace .Release.Namespace -}}
{{- fail "installers.namespace: is the release namespace; privileged Jobs need a separate namespace" -}}
{{- end -}}
{{- if and $v.services.hostManager.enabled $v.services.hostManager.watchNamespaces -}}
{{- range $service, $its := $v.services -}}
{{- if and $its.enabled (ne $service "hostManager") -}}
{{- fail (printf "services.hostManager.watchNamespaces: needs services.%s.enabled=false: a restricted host_manager is a separate cluster on the bus, and the other services watch all namespaces" $service) -}}
{{- end -}}
{{- end -}}
{{- if eq $v.mode "bundle" -}}
{{- fail "services.hostManager.watchNamespaces: needs mode services" -}}
{{- end -}}
{{- end -}}
{{- $replicas := ternary $v.bundle.replicas $v.services.controllerHost.replicas (eq $v.mode "bundle") -}}
{{- if and $v.services.controllerHost.enabled $v.controllers.snapshots.existingClaim (gt (int $replicas) 1) -}}
{{- fail "controllers.snapshots.existingClaim: needs one replica: replicas cannot share snapshots" -}}
{{- end -}}
{{- include "trellis.consoleCheck" . -}}
{{- if and $v.wadm.enabled (not $v.latticeNats.enabled) (empty $v.wadm.nats.url) -}}
{{- fail "wadm.nats.url: needs the address of the lattices' NATS server, because latticeNats.enabled is false" -}}
{{- end -}}
{{- if and $v.latticeNats.enabled $v.wadm.nats.url -}}
{{- fail "wadm.nats.url: is for an external NATS server: set latticeNats.enabled to false" -}}
{{- end -}}
{{- if and $v.collector.enabled (not $v.jaeger.enabled) (empty $v.collector.endpoint) -}}
{{- fail "collector.endpoint: needs the address of a trace backend, because jaeger.enabled is false" -}}
{{- end -}}
{{- if and (not $v.nats.enabled) (empty $v.nats.url) -}}
{{- fail "nats.url: needs the address of a NATS server with JetStream, because nats.enabled is false" -}}
{{- end -}}
{{- if and $v.nats.enabled $v.nats.url -}}
{{- fail "nats.url: is for an external NATS server: set nats.enabled to false" -}}
{{- end -}}
{{- $podsOf := dict "pods" $v.pods "bundle" $v.bundle -}}
{{- range $service, $its := $v.services }}{{ $_ := set $podsOf (printf "services.%s" $service) $its }}{{ end -}}
{{- range $key, $its := $podsOf -}}
{{- range $its.extraEnv -}}
{{- if hasPrefix "TRELLIS_" .name -}}
{{- fail (printf "%s.extraEnv: %s is a setting: set it in services.<service>.settings" $key .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $runner := (include "trellis.runners" . | fromYaml).runners -}}
{{- $name := printf "%s-%s" (include "trellis.fullname" $) $runner.component -}}
{{- $there := lookup "apps/v1" "Deployment" $.Release.Namespace $name -}}
{{- $has := dig "spec" "selector" "matchLabels" "app.kubernetes.io/name" "" $there -}}
{{- $wanted := $v.nameOverride | default $.Chart.Name -}}
{{- if and $has (ne $has $wanted) -}}
{{- fail (printf "nameOverride: Deployment %s selects pods by the name %s, which Kubernetes does not change to %s: set nameOverride=%s, or uninstall first" $name $has $wanted $has) -}}
{{- end -}}
{{- end -}}
{{- if and $v.monitoring.podMonitor.enabled $v.monitoring.serviceMonitor.enabled -}}
{{- fail "monitoring.serviceMonitor.enabled: needs podMonitor.enabled=false: otherwise each pod is scraped twice" -}}
{{- end -}}
{{- end -}}
