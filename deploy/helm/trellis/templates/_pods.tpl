{{/* Parts of the pods of services. */}}

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
{{- if and (eq .service "provisioner") $v.kwasmOperator.installerImage -}}
{{- $_ := set $found "TRELLIS_INSTALLER_IMAGE" $v.kwasmOperator.installerImage -}}
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
{{- if not $v.nats.enabled -}}
{{- $_ := set $found "TRELLIS_NATS_URL" $v.nats.url -}}
{{- if $v.nats.seedsSecret }}{{ $_ := set $found "TRELLIS_NATS_NKEY_FILE" (printf "/etc/trellis/nats/{service}.%s.nk" $v.cluster) }}{{ end -}}
{{- end -}}
{{- range $name, $value := .its.settings }}{{ $_ := set $found $name (toString $value) }}{{ end -}}
{{- toYaml $found -}}
{{- end -}}

{{/* Deployments: a list of {component, command, services, replicas, resources}, under `runners` */}}
{{- define "trellis.runners" -}}
{{- $runners := list -}}
{{- $apart := list -}}
{{- $all := list -}}
{{- range $service, $its := .Values.services -}}
{{- if $its.enabled -}}
{{- $component := include "trellis.component" $service -}}
{{- $resources := $its.resources | default $.Values.pods.resources -}}
{{- $runner := dict "component" $component "command" (list (printf "trellis-%s" $component)) "services" (list $service) "replicas" (int $its.replicas) "resources" $resources -}}
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
{{- $runners = list (dict "component" "bundle" "command" $command "services" $all "replicas" (int .Values.bundle.replicas) "resources" .Values.bundle.resources) -}}
{{- end -}}
{{- toYaml (dict "runners" (concat $runners $apart)) -}}
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

{{- define "trellis.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest }}{{ $image.repository }}@{{ $image.digest }}{{ else }}{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}{{ end -}}
{{- end -}}

{{/* seed of the bus passwords: that of the last upgrade, else a new one; the same in all templates */}}
{{- define "trellis.natsSeed" -}}
{{- if not (hasKey .Values.nats "madeSeed") -}}
{{- $there := lookup "v1" "Secret" .Release.Namespace "trellis-nats-server" -}}
{{- $_ := set .Values.nats "madeSeed" (dig "data" "seed" "" $there | b64dec | default (randAlphaNum 48)) -}}
{{- end -}}
{{- .Values.nats.madeSeed -}}
{{- end -}}

{{/* password of a user of the bus. In: seed, user */}}
{{- define "trellis.natsPassword" -}}
{{- printf "%s/%s" .seed .user | sha256sum -}}
{{- end -}}
