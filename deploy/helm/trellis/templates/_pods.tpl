{{/* Parts of the pods of services. */}}

{{/* Text of a scalar. Helm reads whole numbers in files of values as floats, and toString writes 1000000 as 1e+06. */}}
{{- define "trellis.text" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}
{{- printf "%.0f" . -}}
{{- else -}}
{{- toString . -}}
{{- end -}}
{{- end -}}

{{/* TRELLIS_ variables of a service, as a map of strings. In: root, service (its key), its (its values) */}}
{{- define "trellis.settings" -}}
{{- $v := .root.Values -}}
{{- $found := dict "TRELLIS_NAMESPACE" .root.Release.Namespace "TRELLIS_CLUSTER" $v.cluster -}}
{{- with include "trellis.otlpEndpoint" .root -}}
{{- $_ := set $found "TRELLIS_OTLP_ENDPOINT" . -}}
{{- $_ := set $found "TRELLIS_TRACE_SAMPLE_RATIO" (toString $v.tracing.sampleRatio) -}}
{{- end -}}
{{- if has .service (list "nodeWatcher" "provisioner" "console") -}}
{{- $_ := set $found "TRELLIS_INSTALLER_NAMESPACE" $v.installers.namespace -}}
{{- end -}}
{{- if has .service (list "nodeWatcher" "provisioner") -}}
{{- $_ := set $found "TRELLIS_AUTO_PROVISION" (include "trellis.autoProvision" .root) -}}
{{- if eq .service "provisioner" -}}
{{- $_ := set $found "TRELLIS_WATCH_WORKLOADS" (toString .its.watchWorkloads) -}}
{{- $_ := set $found "TRELLIS_NODE_INSTALLER_IMAGE" (include "trellis.installerImage" .root) -}}
{{- $_ := set $found "TRELLIS_INSTALLER_PULL_POLICY" $v.installers.image.pullPolicy -}}
{{- with include "trellis.pullSecretNames" (dict "root" .root "names" $v.installers.image.pullSecrets) | fromYamlArray }}{{ $_ := set $found "TRELLIS_INSTALLER_PULL_SECRETS" (join "," .) }}{{ end -}}
{{- with $v.kwasmOperator.installerImage }}{{ $_ := set $found "TRELLIS_INSTALLER_IMAGE" . }}{{ end -}}
{{- end -}}
{{- else if eq .service "hostManager" -}}
{{- with .its.watchNamespaces }}{{ $_ := set $found "TRELLIS_WATCH_NAMESPACES" (join "," .) }}{{ end -}}
{{- else if eq .service "secretsBackend" -}}
{{- $users := list -}}
{{- range $v.secrets.accounts }}{{ with .user }}{{ $users = append $users . }}{{ end }}{{ end -}}
{{- with $users }}{{ $_ := set $found "TRELLIS_SECRETS_USERS" (uniq . | join ",") }}{{ end -}}
{{- else if eq .service "controllerHost" -}}
{{- $kinds := list -}}
{{- range $v.controllers.watch }}{{ $kinds = append $kinds (printf "%s/%s" .apiVersion .kind) }}{{ end -}}
{{- $_ := set $found "TRELLIS_CONTROLLER_RESOURCES" (join "," $kinds) -}}
{{- $_ := set $found "TRELLIS_CONTROLLER_DATA_DIR" "/var/lib/trellis/controllers/state" -}}
{{- if $v.controllers.modulesClaim }}{{ $_ := set $found "TRELLIS_CONTROLLER_MODULES_DIR" "/var/lib/trellis/modules" }}{{ end -}}
{{- else if eq .service "console" -}}
{{- $found = merge $found (include "trellis.consoleSettings" .root | fromYaml) -}}
{{- end -}}
{{- $found = merge $found (include "trellis.natsSettings" .root | fromYaml) -}}
{{- range $name, $value := .its.settings }}{{ $_ := set $found $name (include "trellis.text" $value) }}{{ end -}}
{{- toYaml $found -}}
{{- end -}}

{{/* Deployments: a list of {component, command, services, replicas, options}, under `runners`; `options` as in `pods` */}}
{{- define "trellis.runners" -}}
{{- $runners := list -}}
{{- $apart := list -}}
{{- $all := list -}}
{{- range $service, $its := .Values.services -}}
{{- if $its.enabled -}}
{{- $component := include "trellis.component" $service -}}
{{- $options := include "trellis.podOptions" (dict "root" $ "its" $its) | fromYaml -}}
{{- $runner := dict "component" $component "command" (list (printf "trellis-%s" $component)) "services" (list $service) "replicas" (int $its.replicas) "options" $options -}}
{{- if eq $service "console" -}}
{{- /* The console has its own permissions, so it is not part of the bundle. */ -}}
{{- $apart = append $apart $runner -}}
{{- else -}}
{{- $all = append $all $service -}}
{{- $runners = append $runners $runner -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $all (eq .Values.mode "bundle") -}}
{{- $command := list "trellis" "run" -}}
{{- range $all }}{{ $command = append $command (include "trellis.component" .) }}{{ end -}}
{{- $options := include "trellis.podOptions" (dict "root" . "its" .Values.bundle) | fromYaml -}}
{{- $runners = list (dict "component" "bundle" "command" $command "services" $all "replicas" (int .Values.bundle.replicas) "options" $options) -}}
{{- end -}}
{{- toYaml (dict "runners" (concat $runners $apart)) -}}
{{- end -}}

{{/* options of a Deployment's pods: its own values where they are not empty, else those of `pods`. In: root, its */}}
{{- define "trellis.podOptions" -}}
{{- $found := dict -}}
{{- $its := .its -}}
{{- range $key, $default := .root.Values.pods }}{{ $_ := set $found $key (get $its $key | default $default) }}{{ end -}}
{{- toYaml $found -}}
{{- end -}}

{{/* scheduling fields of a pod, from a map as `pods`; empty without any */}}
{{- define "trellis.scheduling" -}}
{{- $options := . -}}
{{- $found := dict -}}
{{- range $key := list "priorityClassName" "nodeSelector" "tolerations" "affinity" -}}
{{- with get $options $key }}{{ $_ := set $found $key . }}{{ end -}}
{{- end -}}
{{- with $found }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{/* topologySpreadConstraints of a pod, each with a selector of its component; empty without any.
     In: constraints, default (topology keys to spread over otherwise), selector (a map) */}}
{{- define "trellis.spread" -}}
{{- $selector := dict "matchLabels" .selector -}}
{{- $found := list -}}
{{- range .constraints -}}
{{- if hasKey . "labelSelector" -}}
{{- $found = append $found . -}}
{{- else -}}
{{- $found = append $found (merge (dict "labelSelector" $selector) .) -}}
{{- end -}}
{{- end -}}
{{- if not .constraints -}}
{{- range .default -}}
{{- $found = append $found (dict "maxSkew" 1 "topologyKey" . "whenUnsatisfiable" "ScheduleAnyway" "labelSelector" $selector) -}}
{{- end -}}
{{- end -}}
{{- with $found -}}
topologySpreadConstraints: {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* security context of a pod for the Pod Security level `restricted`. In: the id of user and group */}}
{{- define "trellis.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ . }}
runAsGroup: {{ . }}
fsGroup: {{ . }}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "trellis.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}
