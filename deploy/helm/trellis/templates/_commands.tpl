{{/* Common parts of pods that run one command to completion. */}}

{{- define "trellis.commandPod" -}}
enableServiceLinks: false
securityContext: {{- include "trellis.podSecurity" 65532 | nindent 2 }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .Values.pods.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.pods.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.pods.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
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
