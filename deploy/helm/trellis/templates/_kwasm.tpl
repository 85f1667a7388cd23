{{/* Values of KWasm's chart: two mean something here, the others are refused by what says the same in this one. */}}

{{/* whether every Linux node is provisioned: "true" or "false" */}}
{{- define "trellis.autoProvision" -}}
{{- $theirs := toString .Values.kwasmOperator.autoProvision -}}
{{- ternary $theirs (toString .Values.installers.autoProvision) (has $theirs (list "true" "false")) -}}
{{- end -}}

{{- define "trellis.kwasmCheck" -}}
{{- $v := .Values -}}
{{- $theirs := $v.kwasmOperator -}}
{{- if and $v.installers.autoProvision (eq (toString $theirs.autoProvision) "false") -}}
{{- fail "kwasmOperator.autoProvision: is false, and installers.autoProvision is true: leave one of them out" -}}
{{- end -}}
{{- $ours := get $v.services.provisioner.settings "TRELLIS_INSTALLER_IMAGE" | default "" -}}
{{- if and $theirs.installerImage $ours (ne (toString $ours) $theirs.installerImage) -}}
{{- fail (printf "kwasmOperator.installerImage: is %s, and services.provisioner.settings.TRELLIS_INSTALLER_IMAGE is %s: leave one of them out" $theirs.installerImage $ours) -}}
{{- end -}}
{{- if contains "kwasm/kwasm-operator" (lower $v.image.repository) -}}
{{- fail (printf "image.repository: %s is KWasm's operator: leave image out of its values, or name the image of Trellis' services" $v.image.repository) -}}
{{- end -}}
{{- $instead := dict
      "replicaCount" "say services.nodeWatcher.replicas and services.provisioner.replicas"
      "imagePullSecrets" "say image.pullSecrets, a list of names"
      "podAnnotations" "say pods.annotations"
      "resources" "say pods.resources, or services.provisioner.resources"
      "nodeSelector" "say pods.nodeSelector"
      "tolerations" "say pods.tolerations"
      "affinity" "leave it out: replicas are spread over nodes"
      "nameOverride" "leave it out: names are fixed"
      "fullnameOverride" "leave it out: names are fixed"
      "serviceAccount" "leave it out: each service has an account of its own"
      "podSecurityContext" "leave it out: pods run without privileges"
      "securityContext" "leave it out: pods run without privileges"
      "service" "leave it out: there is none" -}}
{{- range $name := keys $instead | sortAlpha -}}
{{- if get $v $name -}}
{{- fail (printf "%s: is a value of KWasm's chart; here: %s" $name (get $instead $name)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
