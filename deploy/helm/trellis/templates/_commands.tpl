{{/* Common parts of pods that run one command to completion. */}}

{{- define "trellis.commandPod" -}}
enableServiceLinks: false
securityContext: {{- include "trellis.podSecurity" 65532 | nindent 2 }}
{{- with include "trellis.pullSecrets" . }}
{{ . }}
{{- end }}
{{- with include "trellis.scheduling" .Values.pods }}
{{ . }}
{{- end }}
volumes:
  - {name: tmp, emptyDir: {sizeLimit: 64Mi}}
{{- end -}}

{{- define "trellis.commandContainer" -}}
image: {{ include "trellis.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext: {{- include "trellis.containerSecurity" . | nindent 2 }}
resources: {{- toYaml .Values.pods.resources | nindent 2 }}
volumeMounts:
  - {name: tmp, mountPath: /tmp}
{{- end -}}
