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
