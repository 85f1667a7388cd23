{{/* Common parts of the optional components: wadm, NATS for lattices, Jaeger, the collector. */}}

{{/* OTLP endpoint of services, installers and wadm; empty if no traces are exported */}}
{{- define "trellis.otlpEndpoint" -}}
{{- if .Values.otlpEndpoint }}{{ .Values.otlpEndpoint }}
{{- else if .Values.collector.enabled }}http://{{ include "trellis.fullname" . }}-collector.{{ .Release.Namespace }}:4318
{{- else if .Values.jaeger.enabled }}http://{{ include "trellis.fullname" . }}-jaeger.{{ .Release.Namespace }}:4318
{{- end -}}
{{- end -}}

{{/* sources of spans, as peers of a NetworkPolicy: the chart's pods, installers, hosts of any namespace */}}
{{- define "trellis.senders" -}}
- podSelector:
    matchLabels: {{- include "trellis.selectorOfAll" . | nindent 6 }}
- namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: {{ .Values.installers.namespace | quote }}}}
- namespaceSelector: {}
  podSelector: {matchLabels: {app.kubernetes.io/name: wasmcloud}}
{{- end -}}

{{/* common fields of their pods */}}
{{- define "trellis.partPod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext: {{- include "trellis.podSecurity" 10001 | nindent 2 }}
{{- with include "trellis.pullSecrets" . }}
{{ . }}
{{- end }}
{{- with include "trellis.scheduling" .Values.pods }}
{{ . }}
{{- end }}
{{- end -}}

{{/* volume claim of a StatefulSet. In: storage (size, storageClassName) */}}
{{- define "trellis.claimSpec" -}}
accessModes: [ReadWriteOnce]
{{- with .storageClassName }}
storageClassName: {{ . | quote }}
{{- end }}
resources:
  requests: {storage: {{ .size }}}
{{- end -}}

{{/* bytes of a quantity such as 3Gi */}}
{{- define "trellis.bytes" -}}
{{- $unit := regexFind "[A-Za-z]+$" . -}}
{{- $units := dict "" 1 "K" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "P" 1000000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "E" 1000000000000000000 "Ei" 1152921504606846976 -}}
{{- mulf (trimSuffix $unit . | float64) (get $units $unit) | int64 -}}
{{- end -}}

{{/* Fail if the volume of a StatefulSet in the cluster differs: Kubernetes refuses the change after Helm has applied all
     other objects. In: root, value (its key), name, storage (size, storageClassName; empty: no volume) */}}
{{- define "trellis.claimCheck" -}}
{{- $home := .root.Release.Namespace -}}
{{- $there := lookup "apps/v1" "StatefulSet" $home .name -}}
{{- if $there -}}
{{- $has := dict -}}
{{- range dig "spec" "volumeClaimTemplates" list $there -}}
{{- $has = dict "size" .spec.resources.requests.storage "storageClassName" (.spec.storageClassName | default "") -}}
{{- end -}}
{{- $was := include "trellis.claimText" $has -}}
{{- $same := eq (empty $has) (empty .storage) -}}
{{- if and $has .storage -}}
{{- $same = and (eq (include "trellis.bytes" $has.size) (include "trellis.bytes" .storage.size)) (eq $has.storageClassName (.storage.storageClassName | default "")) -}}
{{- end -}}
{{- if not $same -}}
{{- fail (printf "%s: StatefulSet %s has %s, which Kubernetes does not change to %s. Keep it; or resize or delete the volumes (kubectl -n %s get persistentvolumeclaims), delete the StatefulSet without its pods, and upgrade again: kubectl -n %s delete statefulset %s --cascade=orphan" .value .name $was (include "trellis.claimText" .storage) $home $home .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "trellis.claimText" -}}
{{- if . -}}
volumes of {{ .size }}{{ with .storageClassName }} of StorageClass {{ . }}{{ end }}
{{- else -}}
no volume
{{- end -}}
{{- end -}}
