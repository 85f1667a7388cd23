{{/* What the optional parts share: wadm, the NATS of lattices, Jaeger, the collector. */}}

{{/* where services, installers and wadm send spans; nothing where nobody takes them */}}
{{- define "trellis.otlpEndpoint" -}}
{{- if .Values.otlpEndpoint }}{{ .Values.otlpEndpoint }}
{{- else if .Values.collector.enabled }}http://trellis-collector.{{ .Release.Namespace }}:4318
{{- else if .Values.jaeger.enabled }}http://trellis-jaeger.{{ .Release.Namespace }}:4318
{{- end -}}
{{- end -}}

{{/* who sends spans, as peers of a NetworkPolicy: what is of the chart, installers, hosts of any namespace */}}
{{- define "trellis.senders" -}}
- podSelector: {matchLabels: {app.kubernetes.io/name: trellis}}
- namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: {{ .Values.installers.namespace }}}}
- namespaceSelector: {}
  podSelector: {matchLabels: {app.kubernetes.io/name: wasmcloud}}
{{- end -}}

{{/* what all their pods have. In: root, id (of user and group) */}}
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

{{/* a claim of a StatefulSet. In: storage (size, storageClassName) */}}
{{- define "trellis.claimSpec" -}}
accessModes: [ReadWriteOnce]
{{- with .storageClassName }}
storageClassName: {{ . }}
{{- end }}
resources:
  requests: {storage: {{ .size }}}
{{- end -}}
