{{/* NATS of the bus: checks of values, sizes, names, configuration of the servers, and settings of the services. */}}

{{- define "trellis.natsCheck" -}}
{{- $nats := .Values.nats -}}
{{- $tls := $nats.tls -}}
{{- if and $tls.secretName $tls.certManager.issuerRef.name -}}
{{- fail "nats.tls: secretName is for an existing Secret, certManager for an issued certificate: set only one of them" -}}
{{- end -}}
{{- if and (not $tls.enabled) (or $tls.secretName $tls.certManager.issuerRef.name) -}}
{{- fail "nats.tls.enabled: is false, but nats.tls names certificates: set it to true" -}}
{{- end -}}
{{- if and $nats.enabled $nats.caSecret -}}
{{- fail "nats.caSecret: is for an external NATS server: set nats.enabled to false" -}}
{{- end -}}
{{- if and $nats.enabled $nats.existingSecret (include "trellis.natsMadeTls" .) -}}
{{- fail "nats.tls: needs secretName or certManager, because the Job that creates certificates does not run with nats.existingSecret" -}}
{{- end -}}
{{- if $nats.enabled -}}
{{- $room := include "trellis.natsRoom" . | int64 -}}
{{- if lt $room (include "trellis.natsStreams" . | int64) -}}
{{- fail (printf "nats.storage.size: %s is too small: the streams need up to %s bytes, and a tenth is reserved for the server: set 2600Mi or more" $nats.storage.size (include "trellis.natsStreams" .)) -}}
{{- end -}}
{{- $name := include "trellis.natsName" . -}}
{{- $there := lookup "apps/v1" "StatefulSet" .Release.Namespace $name -}}
{{- $has := dig "spec" "replicas" 0 $there | int -}}
{{- if and $there (ne $has (int $nats.replicas)) -}}
{{- fail (printf "nats.replicas: there are %d servers, and stored messages are not moved to %d: services would re-create the streams and publish the current state, but past events and dead letters would be lost (`trellis dead-letters list` shows them). Keep nats.replicas=%d; or delete the servers and upgrade again: kubectl -n %s delete statefulset %s" $has (int $nats.replicas) $has .Release.Namespace $name) -}}
{{- end -}}
{{- include "trellis.claimCheck" (dict "root" . "value" "nats.storage" "name" $name "storage" $nats.storage) -}}
{{- end -}}
{{- end -}}

{{/* maximum bytes of all streams: the sum of their limits in trellis.bus.accounts */}}
{{- define "trellis.natsStreams" -}}
2432696320
{{- end -}}

{{/* maximum bytes that a server stores: its volume, less a tenth for its logs and indexes */}}
{{- define "trellis.natsRoom" -}}
{{- mulf (include "trellis.bytes" .Values.nats.storage.size | float64) 0.9 | int64 -}}
{{- end -}}

{{/* name of the StatefulSet and of its Service */}}
{{- define "trellis.natsName" -}}
{{- include "trellis.fullname" . }}-nats
{{- end -}}

{{/* `host:port` of the servers' cluster ports, as a list; of one server there is none */}}
{{- define "trellis.natsRoutes" -}}
{{- $name := include "trellis.natsName" . -}}
{{- $routes := list -}}
{{- if gt (int .Values.nats.replicas) 1 -}}
{{- range $ordinal := until (int .Values.nats.replicas) -}}
{{- $routes = append $routes (printf "%s-%d.%s-headless.%s:6222" $name $ordinal $name $.Release.Namespace) -}}
{{- end -}}
{{- end -}}
{{- toYaml $routes -}}
{{- end -}}

{{/* nats.conf. accounts.conf and routes.conf are in the Secret of the bus: they have the keys of the users, and a password */}}
{{- define "trellis.natsConf" -}}
port: 4222
http_port: 8222
server_name: $POD_NAME
pid_file: "/run/nats/nats.pid"
# The server announces its shutdown at once, and closes client connections after the grace period, within the duration.
lame_duck_grace_period: "5s"
lame_duck_duration: "30s"
jetstream {
  store_dir: "/data"
  max_file_store: {{ include "trellis.natsRoom" . }}
}
{{- if .Values.nats.tls.enabled }}
tls {
  cert_file: "/etc/nats-tls/tls.crt"
  key_file: "/etc/nats-tls/tls.key"
}
{{- end }}
{{- if gt (int .Values.nats.replicas) 1 }}
cluster {
  name: trellis
  port: 6222
  # Clients connect by the name of the Service, which selects ready servers.
  no_advertise: true
  include "routes.conf"
  {{- if .Values.nats.tls.enabled }}
  tls {
    cert_file: "/etc/nats-tls/tls.crt"
    key_file: "/etc/nats-tls/tls.key"
    ca_file: "/etc/nats-tls/ca.crt"
    verify: true
    timeout: 5
  }
  {{- end }}
}
{{- end }}
include "accounts.conf"
{{- end -}}

{{/* name of the Secret with the users of the bus; empty for an external server without users */}}
{{- define "trellis.busSecret" -}}
{{- if or .Values.nats.enabled .Values.nats.existingSecret -}}
{{- .Values.nats.existingSecret | default (printf "%s-bus" (include "trellis.fullname" .)) -}}
{{- end -}}
{{- end -}}

{{/* not empty if the Job creates that Secret */}}
{{- define "trellis.busJob" -}}
{{- if and .Values.nats.enabled (not .Values.nats.existingSecret) }}true{{ end -}}
{{- end -}}

{{/* volume with the seeds of users of the bus, and its mount; empty without that Secret. In: root, users (names of files) */}}
{{- define "trellis.seedsVolume" -}}
{{- with include "trellis.busSecret" .root -}}
- name: seeds
  secret:
    secretName: {{ . | quote }}
    defaultMode: 0440
    items:
      {{- range $.users }}
      - {key: {{ . }}, path: {{ . }}}
      {{- end }}
{{- end -}}
{{- end -}}

{{- define "trellis.seedsMount" -}}
{{- if include "trellis.busSecret" . -}}
- {name: seeds, mountPath: /etc/trellis/nats, readOnly: true}
{{- end -}}
{{- end -}}

{{/* not empty if the Job creates the certificates */}}
{{- define "trellis.natsMadeTls" -}}
{{- $tls := .Values.nats.tls -}}
{{- if and .Values.nats.enabled $tls.enabled (not $tls.secretName) (not $tls.certManager.issuerRef.name) }}true{{ end -}}
{{- end -}}

{{/* name of the Secret with tls.crt, tls.key and ca.crt */}}
{{- define "trellis.natsTlsSecret" -}}
{{- if .Values.nats.tls.secretName -}}
{{- .Values.nats.tls.secretName -}}
{{- else if .Values.nats.tls.certManager.issuerRef.name -}}
{{- include "trellis.natsName" . }}-certificate
{{- else -}}
{{- include "trellis.fullname" . }}-bus-tls
{{- end -}}
{{- end -}}

{{/* name of the Secret with the CA certificates of NATS; empty if the system's are used, or without TLS */}}
{{- define "trellis.natsCaSecret" -}}
{{- if not .Values.nats.enabled -}}
{{- .Values.nats.caSecret -}}
{{- else if .Values.nats.tls.enabled -}}
{{- include "trellis.natsTlsSecret" . -}}
{{- end -}}
{{- end -}}

{{/* volume with these CA certificates, and its mount; empty without that Secret */}}
{{- define "trellis.natsCaVolume" -}}
{{- with include "trellis.natsCaSecret" . -}}
- name: nats-ca
  secret:
    secretName: {{ . | quote }}
    defaultMode: 0440
    items:
      - {key: ca.crt, path: ca.crt}
{{- end -}}
{{- end -}}

{{- define "trellis.natsCaMount" -}}
{{- if include "trellis.natsCaSecret" . -}}
- {name: nats-ca, mountPath: /etc/trellis/nats-ca, readOnly: true}
{{- end -}}
{{- end -}}

{{/* DNS names of the servers, as a list; the cluster's DNS completes short ones */}}
{{- define "trellis.natsNames" -}}
{{- $name := include "trellis.natsName" . -}}
{{- $names := list "localhost" -}}
{{- range $host := list $name (printf "*.%s-headless" $name) -}}
{{- range $rest := list "" ".svc" ".svc.cluster.local" -}}
{{- $names = append $names (printf "%s.%s%s" $host $.Release.Namespace $rest) -}}
{{- end -}}
{{- end -}}
{{- toYaml $names -}}
{{- end -}}

{{/* address of the bus */}}
{{- define "trellis.natsUrl" -}}
{{- if .Values.nats.enabled -}}
{{- ternary "tls" "nats" .Values.nats.tls.enabled }}://{{ include "trellis.natsName" . }}.{{ .Release.Namespace }}:4222
{{- else -}}
{{- .Values.nats.url -}}
{{- end -}}
{{- end -}}

{{/* TRELLIS_ variables about NATS, as a map */}}
{{- define "trellis.natsSettings" -}}
{{- $nats := .Values.nats -}}
{{- $copies := ternary $nats.replicas $nats.streamReplicas $nats.enabled | int -}}
{{- $found := dict "TRELLIS_NATS_URL" (include "trellis.natsUrl" .) -}}
{{- if include "trellis.busSecret" . }}{{ $_ := set $found "TRELLIS_NATS_NKEY_FILE" (printf "/etc/trellis/nats/{service}.%s.nk" .Values.cluster) }}{{ end -}}
{{- if gt $copies 1 }}{{ $_ := set $found "TRELLIS_STREAM_REPLICAS" (toString $copies) }}{{ end -}}
{{- if include "trellis.natsCaSecret" . }}{{ $_ := set $found "TRELLIS_NATS_CA_FILE" "/etc/trellis/nats-ca/ca.crt" }}{{ end -}}
{{- toYaml $found -}}
{{- end -}}

{{/* probes of a server with JetStream that serves HTTP at port `monitor` */}}
{{- define "trellis.natsProbes" -}}
# Succeeds when the server is in sync with its peers, so that a rolling update waits for each server.
startupProbe:
  httpGet: {path: /healthz, port: monitor}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 300
# Fails after 30 s without an answer; existing connections stay open.
readinessProbe:
  httpGet: {path: "/healthz?js-server-only=true", port: monitor}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 6
# Fails after 2 minutes. A server that is short of CPU answers late but works: a restart would disconnect its clients and
# need more CPU. A restart repairs disabled JetStream and a server that hangs, and both can wait 2 minutes.
livenessProbe:
  httpGet: {path: "/healthz?js-enabled-only=true", port: monitor}
  periodSeconds: 30
  timeoutSeconds: 20
  failureThreshold: 4
{{- end -}}
