{{/* NATS of the bus: checks of values, sizes, names, certificates, and settings of the services. */}}

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
{{- if $nats.enabled -}}
{{- $room := include "trellis.natsRoom" . | int64 -}}
{{- if lt $room (include "trellis.natsStreams" . | int64) -}}
{{- fail (printf "nats.storage.size: %s is too small: the streams need up to %s bytes, and a tenth is reserved for the server: set 2600Mi or more" $nats.storage.size (include "trellis.natsStreams" .)) -}}
{{- end -}}
{{- $there := lookup "apps/v1" "StatefulSet" .Release.Namespace "trellis-nats" -}}
{{- $has := dig "spec" "replicas" 0 $there | int -}}
{{- if and $there (ne $has (int $nats.replicas)) -}}
{{- fail (printf "nats.replicas: there are %d servers, and stored messages are not moved to %d: services would re-create the streams and publish the current state, but past events and dead letters would be lost (`trellis dead-letters list` shows them). Keep nats.replicas=%d; or delete the servers and upgrade again: kubectl -n %s delete statefulset trellis-nats" $has (int $nats.replicas) $has .Release.Namespace) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* maximum bytes of all streams: the sum of their limits in trellis.bus.accounts */}}
{{- define "trellis.natsStreams" -}}
2432696320
{{- end -}}

{{/* maximum bytes that a server stores: its volume, less a tenth for its logs and indexes */}}
{{- define "trellis.natsRoom" -}}
{{- $size := .Values.nats.storage.size -}}
{{- $unit := regexFind "[A-Za-z]+$" $size -}}
{{- $units := dict "" 1 "K" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "P" 1000000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "E" 1000000000000000000 "Ei" 1152921504606846976 -}}
{{- mulf (trimSuffix $unit $size | float64) (get $units $unit) 0.9 | int64 -}}
{{- end -}}

{{/* name of the Secret with tls.crt, tls.key and ca.crt */}}
{{- define "trellis.natsTlsSecret" -}}
{{- if .Values.nats.tls.secretName -}}
{{- .Values.nats.tls.secretName -}}
{{- else if .Values.nats.tls.certManager.issuerRef.name -}}
trellis-nats-certificate
{{- else -}}
trellis-nats-tls
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
    secretName: {{ . }}
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

{{/* DNS names of the servers; the cluster's DNS completes short ones */}}
{{- define "trellis.natsNames" -}}
{{- $names := list "localhost" -}}
{{- range $host := list "trellis-nats" "*.trellis-nats-headless" -}}
{{- range $rest := list "" ".svc" ".svc.cluster.local" -}}
{{- $names = append $names (printf "%s.%s%s" $host $.Release.Namespace $rest) -}}
{{- end -}}
{{- end -}}
{{- toYaml $names -}}
{{- end -}}

{{/* generated certificates in base64, as a map: those of the last upgrade, else new ones; the same in all templates */}}
{{- define "trellis.natsMadeTls" -}}
{{- if not (hasKey .Values.nats "madeTls") -}}
{{- $kept := dig "data" dict (lookup "v1" "Secret" .Release.Namespace "trellis-nats-tls") -}}
{{- if not (and (get $kept "tls.crt") (get $kept "tls.key") (get $kept "ca.crt")) -}}
{{- $authority := genCA "trellis-nats-authority" 3650 -}}
{{- $names := include "trellis.natsNames" . | fromYamlArray -}}
{{- $made := genSignedCert "trellis-nats" (list "127.0.0.1") $names 3650 $authority -}}
{{- $kept = dict "tls.crt" ($made.Cert | b64enc) "tls.key" ($made.Key | b64enc) "ca.crt" ($authority.Cert | b64enc) -}}
{{- end -}}
{{- $_ := set .Values.nats "madeTls" (pick $kept "tls.crt" "tls.key" "ca.crt") -}}
{{- end -}}
{{- toYaml .Values.nats.madeTls -}}
{{- end -}}

{{/* TRELLIS_ variables about NATS, as a map */}}
{{- define "trellis.natsSettings" -}}
{{- $nats := .Values.nats -}}
{{- $copies := ternary $nats.replicas $nats.streamReplicas $nats.enabled | int -}}
{{- $found := dict -}}
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
