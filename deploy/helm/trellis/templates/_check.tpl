{{/* Fail if values lack the chart's defaults: Helm drops the default of a key without a value, and with --reuse-values it
     keeps the defaults of the previous chart. Keys of required.yaml are in the order of values.yaml. */}}
{{- define "trellis.defaultsCheck" -}}
{{- range $name := .Files.Get "required.yaml" | fromYamlArray -}}
{{- /* A release before the console has no values of it. */ -}}
{{- if or (not (hasPrefix "services.console" $name)) (dig "console" false $.Values.services) -}}
{{- $found := $.Values -}}
{{- range splitList "." $name }}{{ $found = index $found . }}{{ end -}}
{{- if kindIs "invalid" $found -}}
{{- fail (printf "%s: has no value and no default, because the key is empty: remove it; or because --reuse-values keeps the defaults of the previous chart: give helm --reset-then-reuse-values" $name) -}}
{{- end -}}
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
