{{/* Common parts of the optional components: wadm, NATS for lattices, Jaeger, the collector. */}}

{{/* OTLP endpoint of services, installers and wadm; empty if no traces are exported */}}
{{- define "trellis.otlpEndpoint" -}}
{{- if .Values.otlpEndpoint }}{{ .Values.otlpEndpoint }}
{{- else if .Values.collector.enabled }}http://trellis-collector.{{ .Release.Namespace }}:4318
{{- else if .Values.jaeger.enabled }}http://trellis-jaeger.{{ .Release.Namespace }}:4318
{{- end -}}
{{- end -}}

{{/* sources of spans, as peers of a NetworkPolicy: the chart's pods, installers, hosts of any namespace */}}
{{- define "trellis.senders" -}}
- podSelector: {matchLabels: {app.kubernetes.io/name: trellis}}
- namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: {{ .Values.installers.namespace }}}}
- namespaceSelector: {}
  podSelector: {matchLabels: {app.kubernetes.io/name: wasmcloud}}
{{- end -}}

{{/* common fields of their pods. In: root, id (of user and group) */}}
{{- define "trellis.partPod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext: {{- include "trellis.podSecurity" .id | nindent 2 }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .root.Values.pods.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .root.Values.pods.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.pods.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* volume claim of a StatefulSet. In: storage (size, storageClassName) */}}
{{- define "trellis.claimSpec" -}}
accessModes: [ReadWriteOnce]
{{- with .storageClassName }}
storageClassName: {{ . }}
{{- end }}
resources:
  requests: {storage: {{ .size }}}
{{- end -}}
