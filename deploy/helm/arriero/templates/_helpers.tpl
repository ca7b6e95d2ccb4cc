{{- define "arriero.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "arriero.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "arriero.labels" -}}
{{ include "arriero.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "arriero.image" -}}
{{- if .Values.image.digest -}}
{{ printf "%s@%s" .Values.image.repository .Values.image.digest | quote }}
{{- else -}}
{{ printf "%s:%s" .Values.image.repository (required "image.tag or image.digest is required" .Values.image.tag) | quote }}
{{- end -}}
{{- end }}

{{- define "arriero.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ default (include "arriero.name" .) .Values.serviceAccount.name }}
{{- else -}}
{{ default "default" .Values.serviceAccount.name }}
{{- end -}}
{{- end }}

{{- define "arriero.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "arriero.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* What every pod needs. Kubernetes would put the address of a Service into variables like ARRIERO_HTTP_PORT: settings of ours. */}}
{{- define "arriero.podBasics" -}}
enableServiceLinks: false
automountServiceAccountToken: false
securityContext:
  {{- include "arriero.podSecurity" . | nindent 2 }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The names by which the API is known. Probes and Prometheus call a pod by its address. */}}
{{- define "arriero.hosts" -}}
{{- $service := include "arriero.name" . -}}
{{- $names := list "$(POD_IP)" $service (printf "%s.%s" $service .Release.Namespace) (printf "%s.%s.svc" $service .Release.Namespace) -}}
{{- if .Values.ingress.enabled -}}
{{- $names = append $names .Values.ingress.host -}}
{{- end -}}
{{- concat $names .Values.http.hosts | uniq | join "," -}}
{{- end }}

{{/* A Deployment. Call it with root, component and of: the values of that component, with replicas, roles and so on. */}}
{{- define "arriero.deployment" -}}
{{- $root := .root -}}
{{- $serves := has "http" .of.roles -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "arriero.name" $root }}-{{ .component }}
  labels:
    {{- include "arriero.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  replicas: {{ .of.replicas }}
  strategy:
    rollingUpdate: {maxUnavailable: {{ ternary 0 1 $serves }}, maxSurge: 1}
  selector:
    matchLabels:
      {{- include "arriero.selector" $root | nindent 6 }}
      app.kubernetes.io/component: {{ .component }}
  template:
    metadata:
      labels:
        {{- include "arriero.labels" $root | nindent 8 }}
        app.kubernetes.io/component: {{ .component }}
        {{- if $serves }}
        arriero/serves: "true"
        {{- end }}
        {{- with $root.Values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with $root.Values.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      {{- include "arriero.podBasics" $root | nindent 6 }}
      serviceAccountName: {{ include "arriero.serviceAccount" $root }}
      terminationGracePeriodSeconds: {{ .of.terminationGracePeriodSeconds }}
      {{- with $root.Values.topologySpreadConstraints }}
      topologySpreadConstraints:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: arriero
          image: {{ include "arriero.image" $root }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args:
            - run
            - --roles
            - {{ join "," .of.roles | quote }}
            {{- with .of.agents }}
            - --agents
            - {{ join "," . | quote }}
            {{- end }}
          env:
            - name: ARRIERO_STORE
              valueFrom:
                secretKeyRef: {name: {{ $root.Values.store.existingSecret | quote }}, key: {{ $root.Values.store.key | quote }}}
            {{- with $root.Values.app }}
            - name: ARRIERO_APP
              value: {{ . | quote }}
            {{- end }}
            {{- if $serves }}
            - name: POD_IP
              valueFrom:
                fieldRef: {fieldPath: status.podIP}
            - name: ARRIERO_HTTP_HOST
              value: $(POD_IP)
            - name: ARRIERO_HTTP_PORT
              value: {{ $root.Values.http.port | quote }}
            - name: ARRIERO_HTTP_HOSTS
              value: {{ include "arriero.hosts" $root | quote }}
            - name: ARRIERO_HTTP_TLS_CERT
              value: /run/arriero/tls/tls.crt
            - name: ARRIERO_HTTP_TLS_KEY
              value: /run/arriero/tls/tls.key
            {{- end }}
            {{- with $root.Values.env }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          {{- with $root.Values.envFrom }}
          envFrom:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- if $serves }}
          ports:
            - {name: https, containerPort: {{ $root.Values.http.port }}}
          startupProbe:
            httpGet: {path: /v1/health/live, port: https, scheme: HTTPS}
            periodSeconds: 2
            failureThreshold: 30
          livenessProbe:
            httpGet: {path: /v1/health/live, port: https, scheme: HTTPS}
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 6
          readinessProbe:
            httpGet: {path: /v1/health/ready, port: https, scheme: HTTPS}
            periodSeconds: 5
            timeoutSeconds: 4
            failureThreshold: 2
          lifecycle:
            # Until every node has heard that no new request may be sent here.
            preStop:
              exec: {command: ["sleep", "5"]}
          {{- end }}
          securityContext:
            {{- include "arriero.containerSecurity" $root | nindent 12 }}
          resources:
            {{- toYaml .of.resources | nindent 12 }}
          volumeMounts:
            - {name: tmp, mountPath: /tmp}
            {{- if $serves }}
            - {name: tls, mountPath: /run/arriero/tls, readOnly: true}
            {{- end }}
      volumes:
        - name: tmp
          emptyDir: {sizeLimit: 64Mi}
        {{- if $serves }}
        - name: tls
          secret:
            secretName: {{ $root.Values.http.tls.existingSecret | quote }}
            defaultMode: 0440
        {{- end }}
{{- end }}
