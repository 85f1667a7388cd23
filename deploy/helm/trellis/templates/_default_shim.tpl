{{/* The default Shim: the runtime in the installer's image. */}}

{{/* "true" if the chart has the default Shim: not with an image of KWasm, and not without a checksum */}}
{{- define "trellis.hasDefaultShim" -}}
{{- $v := .Values -}}
{{- $kwasm := or $v.kwasmOperator.installerImage (get ($v.services.provisioner.settings | default dict) "TRELLIS_INSTALLER_IMAGE") -}}
{{- $sums := $v.defaultShim.sha256 -}}
{{- if and $v.defaultShim.enabled $v.services.provisioner.enabled (not $kwasm) (or $sums.amd64 $sums.arm64) -}}true{{- end -}}
{{- end -}}

{{- define "trellis.defaultShim" -}}
apiVersion: runtime.spinkube.dev/v1alpha1
kind: Shim
metadata:
  name: wasi
  labels:
    # Without app.kubernetes.io/instance: Argo CD would take the Shim for an object of its application, and prune it.
    {{- include "trellis.selector" (dict "root" . "component" "default-shim") | nindent 4 }}
    app.kubernetes.io/part-of: trellis
    app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
    # Nodes annotated kwasm.sh/kwasm-node=true, or every Linux node with installers.autoProvision.
    trellis.dev/kwasm-default: "true"
spec:
  fetchStrategy:
    platforms:
      {{- range $arch, $sum := .Values.defaultShim.sha256 }}
      {{- if $sum }}
      - os: linux
        arch: {{ $arch }}
        location: /opt/trellis-runtime/containerd-shim-wasi-v1
        sha256: {{ $sum }}
      {{- end }}
      {{- end }}
  runtimeClass: {name: wasi, handler: wasi}
  rolloutStrategy: {type: rolling, rolling: {maxUpdate: {{ toJson .Values.defaultShim.maxUpdate }}}}
{{- end -}}

{{- define "trellis.defaultShimPod" -}}
{{- $name := printf "%s-default-shim" (include "trellis.fullname" .) -}}
metadata:
  labels: {{- include "trellis.podLabels" (dict "root" . "component" "default-shim") | nindent 4 }}
spec:
  serviceAccountName: {{ $name }}
  restartPolicy: OnFailure
  {{- include "trellis.commandPod" . | nindent 2 }}
    - {name: shim, configMap: {name: {{ $name }}}}
  containers:
    - name: default-shim
      command: [trellis, shims, apply, /etc/trellis/shim/shim.yaml]
      env:
        - {name: TRELLIS_NAMESPACE, value: {{ .Release.Namespace | quote }}}
      {{- include "trellis.commandContainer" . | nindent 6 }}
        - {name: shim, mountPath: /etc/trellis/shim, readOnly: true}
{{- end -}}
